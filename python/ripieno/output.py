"""Results of programs: files and folders, also at URLs, that appear complete or not at all."""

from ripieno.files.results import new_file, new_folder, save_array

__all__ = ["new_file", "new_folder", "save_array"]
