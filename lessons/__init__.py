"""One lesson in each file: a run and its pages. `pagedviz.lesson` shows how a lesson is written."""
