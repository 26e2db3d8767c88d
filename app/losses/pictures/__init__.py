"""Pictures of reports: EP curves of ``ept``, and the convergence of ``aal``, as SVG or PNG.

A picture is a pure function of rows and options. It is built in three steps, a module each::

    rows of reports --collecting--> few points --exceedance, averages--> Figure --canvas--> bytes
                                                  axes, scales, themes

Rows come in pieces, as a pass computes them, and a curve may have millions of points where no
return periods are asked for. So ``collecting`` keeps what a picture can show: of a long curve the
first and last point of every thousandth of a decade, each a row of the table.

Matplotlib draws. It is a library of the extra ``plot`` and imported when a picture is drawn, by
``library`` alone. It reads its settings from global dictionaries and shares caches of fonts, and
does not promise to be safe in threads, so ``canvas`` draws one picture at a time, from the default
settings, and without pyplot, which would keep every figure. Matplotlib decodes no byte of a client
here: it gets numbers that the engine computed, and text of ours, so it needs no isolated process.

The same rows and options give the same bytes with the same version of Matplotlib: ids in an SVG
are hashes with a constant salt, and neither form holds a date or a version.
"""
