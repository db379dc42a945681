"""Questions about a plan, a program or a device, and their answers: in text, on a page, as measurements."""
