"""Results of programs: files and folders that are there as a whole or not at all, also at URLs."""

from ripieno.files.results import new_file, new_folder, save_array

__all__ = ["new_file", "new_folder", "save_array"]
