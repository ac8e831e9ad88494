/* demo_summary.h - what the demo tells about a run: before it, after it, and whether it passed. */
#ifndef LGH_TOOL_DEMO_SUMMARY_H
#define LGH_TOOL_DEMO_SUMMARY_H

#include "demo_run.h"

#include <stdio.h>

/** The device, text and model; before training. */
void lgh_tool_print_setting(FILE *stream, const lgh_tool_run *run);

/** The course of the loss, the time, and the logits that training did not store. */
void lgh_tool_print_training(FILE *stream, const lgh_tool_run *run);

/** The held-out scores as means, as a histogram, and token by token. */
void lgh_tool_print_scores(FILE *stream, const lgh_tool_run *run);

/**
 * Prints the verdict in one line. Returns 0, or -1 if the model is no better on held-out text than
 * token frequencies, or if the two passes that give log-probs at T = 1 disagree.
 */
int lgh_tool_print_verdict(FILE *stream, const lgh_tool_run *run);

#endif
