"""The commands, one file each; each file's ``command`` is what the name of the file does. None may import another."""
