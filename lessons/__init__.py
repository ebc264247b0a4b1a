"""One lesson a file: what happens, and what is said of it. `pagedviz.lesson` says how a lesson is written."""
