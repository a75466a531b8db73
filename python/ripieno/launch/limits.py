"""How long ranks may take, however they are started."""

# How long ranks wait for each other, unless told otherwise.
MEETING_S = 60
# How long the others of a rank wait for a sign of life, unless told otherwise.
HEARTBEAT_S = 10.0
# A process that is to become a rank may be stopped for so long.
STILL_S = 5.0
