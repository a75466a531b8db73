"""Serialize values: arrays in the forms of the native module, objects as pickles; and describe native calls."""
