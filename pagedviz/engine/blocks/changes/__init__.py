"""The atomic changes of a cache, cut by the families of events: blocks in `allocation`, `caching` and `writing`, then
`windows`, `drafts` and `transfers`. Each change reports one event when it is done.

All that belongs together is changed before the report, so the invariants hold at every one of them. Nothing is refused
here: the caller has made sure of room.
"""
