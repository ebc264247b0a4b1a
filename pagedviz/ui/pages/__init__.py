"""What an address may show: a page a file, each with `show`."""
