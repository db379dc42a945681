"""A driver checked against the contract of opsmith_driver.h, function by function, without PyTorch."""
