"""What a verdict lets pass, and how much of a sequence is shown: the judge, the runner and the probes agree on them."""

TOLERANCE = 1e-5  # float32: largest |paged - dense| that passes
MAX_SHOWN_BLOCKS = 64  # of a sequence whose weights and turns are shown: a turn takes the interpreter milliseconds
