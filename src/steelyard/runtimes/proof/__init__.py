"""Whether another way of running a model says the same as the model's own predict, and which way is the fastest.

Used by the selection at a model version's first load. Everything here decides from values that it is given: it reads
no file, starts no process and looks at no clock but the timer handed to `measure`.
"""
