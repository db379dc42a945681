"""``python -m opsmith``."""

from opsmith.cli.main import main

main()
