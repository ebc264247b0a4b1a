"""Where engines differ. A policy is one function; it is asked by all others and imports nothing but its neighbours."""
