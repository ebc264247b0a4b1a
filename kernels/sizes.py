"""Two numbers that every kernel that attends must keep to, and so their references and plans too."""

# tl.dot takes no side shorter than this when compiled; the interpreter would not notice.
SHORTEST_DOT = 16
# The kernel that joins the splits of a sequence holds them all at once.
MOST_SPLITS = 128
