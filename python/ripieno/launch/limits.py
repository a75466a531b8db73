"""How long ranks may take, however they are started."""

# How long ranks wait for each other, unless told otherwise.
MEETING_S = 60
