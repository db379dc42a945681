"""Random programs of operators on a device beside the CPU: drawn, compared, shrunk and shown as Python."""
