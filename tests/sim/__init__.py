"""A simulated node: the library's real verbs in a world of memory, in which every step is chosen.

``disk`` and ``world`` say what the library believes about Linux, ``plugins`` what it believes about plugins.
``schedule`` has the actors, and the ways to choose who goes on at each step. ``seam`` puts the world in place of
``os``, clocks, locks and namespaces. ``stage`` has the words of which ``scenarios`` are made, and what must hold in
the end. ``faults`` has defects to put into the library, to see that they are found.

    PYTHONPATH=tests python -m sim --help
"""
