/* terminal.h - what the place that output goes to can show. */
#ifndef LGH_TOOL_TERMINAL_H
#define LGH_TOOL_TERMINAL_H

#include <stdio.h>

typedef enum lgh_tool_style {
    LGH_TOOL_PLAIN,
    LGH_TOOL_BOLD,
    LGH_TOOL_DIM,
    LGH_TOOL_GREEN,
    LGH_TOOL_RED
} lgh_tool_style;

/** Whether a line can be redrawn in place. */
int lgh_tool_terminal_is_live(FILE *stream);

/** Columns; 80 where it is not known. */
int lgh_tool_terminal_width(FILE *stream);

/** Whether the locale's character set is UTF-8. The program must have called setlocale. */
int lgh_tool_terminal_is_utf8(void);

/** The sequence that turns a style on (PLAIN: all off); empty without colour or with NO_COLOR. */
const char *lgh_tool_terminal_style(FILE *stream, lgh_tool_style style);

/** A horizontal bar of `fraction` of `cells` columns, the rest blank if `padded`. */
void lgh_tool_terminal_bar(FILE *stream, double fraction, int cells, int padded);

#endif
