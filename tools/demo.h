/* demo.h - `loggerhead demo`. */
#ifndef LGH_TOOL_DEMO_H
#define LGH_TOOL_DEMO_H

/** Trains a small language model through the library and scores it. Returns the exit status. */
int lgh_tool_demo(int argc, char **argv);

#endif
