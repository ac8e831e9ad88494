/* refused_calls.h - calls that must be refused: after each, its status, a message that begins with
 * the argument, and every buffer of the problem as it was.
 *
 *     refused_calls r = refused_calls_of();     change r.p.options
 *     refused_calls_open(&r);
 *     REFUSE_BOTH(&r, hidden.data = NULL, INVALID, "args->hidden.data");
 *     refused_calls_close(&r);
 */
#ifndef LGH_REFUSED_CALLS_H
#define LGH_REFUSED_CALLS_H

#include "case_problem.h"

#define INVALID LGH_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED LGH_ERROR_UNSUPPORTED

enum { TOKENS = 9, WIDTH = 16, VOCAB = 50, LISTED = 6, REFUSED_BUFFERS = CASE_BUFFERS + 1 };

typedef struct refused_calls {
    case_problem p;
    device_buffer spare;         /* for what the problem has no buffer of */
    void *held[REFUSED_BUFFERS]; /* what each buffer holds between calls */
} refused_calls;

/** A problem with everything that a call can be given: a bias, counters, a list with its count. */
refused_calls refused_calls_of(void);

/** Makes the plan and shows that it takes the calls as they are; then every result is cleared. */
void refused_calls_open(refused_calls *r);
void refused_calls_close(refused_calls *r);

/** Fails the case unless the call gave this status with a text that begins with the argument. */
void assert_names(lgh_status given, lgh_status expected, const char *argument);

/** Fails the case unless every buffer, the workspaces among them, holds what it held. */
void assert_untouched(const refused_calls *r, const char *argument);

/** Both of them. */
void assert_refused(const refused_calls *r, lgh_status given, lgh_status expected,
                    const char *argument);

/** Call the pass with the problem's own workspace. */
void refuse_forward(const refused_calls *r, const lgh_forward_args *args, lgh_status expected,
                    const char *argument);
void refuse_backward(const refused_calls *r, const lgh_backward_args *args, lgh_status expected,
                     const char *argument);

/** Calls of a pass with one change to its arguments, such as `hidden.rows = 3`. */
#define REFUSE_FORWARD(r, change, expected, argument)                                              \
    do {                                                                                           \
        lgh_forward_args forward_ = case_forward_args(&(r)->p);                                    \
        forward_.change;                                                                           \
        refuse_forward(r, &forward_, expected, argument);                                          \
    } while (0)

#define REFUSE_BACKWARD(r, change, expected, argument)                                             \
    do {                                                                                           \
        lgh_backward_args backward_ = case_backward_args(&(r)->p);                                 \
        backward_.change;                                                                          \
        refuse_backward(r, &backward_, expected, argument);                                        \
    } while (0)

#define REFUSE_BOTH(r, change, expected, argument)                                                 \
    do {                                                                                           \
        REFUSE_FORWARD(r, change, expected, argument);                                             \
        REFUSE_BACKWARD(r, change, expected, argument);                                            \
    } while (0)

#endif
