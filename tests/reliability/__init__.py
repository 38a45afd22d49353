"""What goes wrong on real nodes: crashes, hangs, hostile input, many processes at once."""
