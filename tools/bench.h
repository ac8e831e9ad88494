/* bench.h - `loggerhead bench`: errors, then times against the bare matrix products. */
#ifndef LGH_TOOL_BENCH_H
#define LGH_TOOL_BENCH_H

/** Runs the subcommand and returns its exit status; argv[0] is its name. */
int lgh_tool_bench(int argc, char **argv);

#endif
