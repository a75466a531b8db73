"""Values as bytes: arrays in the forms that the native module takes, objects as pickles, and native calls to make."""
