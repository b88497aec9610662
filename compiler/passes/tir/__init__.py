"""Building blocks over TVM's tensor programs: expressions, loops, stages and accesses."""
