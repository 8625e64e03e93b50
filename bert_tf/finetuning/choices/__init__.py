"""Choosing one of several texts: files of choices and their token ids."""
