/* fake_definitions.h - what a cubin was specialised with. */
#ifndef LGH_FAKE_DEFINITIONS_H
#define LGH_FAKE_DEFINITIONS_H

#include <stddef.h>

/** The values of the kernels' definitions; -1 for those that a kernel has not. */
#define FAKE_DEFINITIONS(X)                                                                        \
    X(threads, "LGH_THREADS")                                                                      \
    X(logits_rounding, "LGH_LOGITS_ROUNDING")                                                      \
    X(softcap, "LGH_SOFTCAP")                                                                      \
    X(targets_int32, "LGH_TARGETS_INT32")                                                          \
    X(want_entropy, "LGH_WANT_ENTROPY")                                                            \
    X(want_logp_at_one, "LGH_WANT_LOGP_AT_ONE")                                                    \
    X(want_best, "LGH_WANT_BEST")                                                                  \
    X(chunk, "LGH_CHUNK")                                                                          \
    X(gradient, "LGH_GRADIENT")                                                                    \
    X(from, "LGH_FROM")                                                                            \
    X(to, "LGH_TO")

typedef struct fake_definitions {
#define FAKE_DEFINITION_MEMBER(member, name) int member;
    FAKE_DEFINITIONS(FAKE_DEFINITION_MEMBER)
#undef FAKE_DEFINITION_MEMBER
} fake_definitions;

/** Finds the image of so many bytes in the kernel cache, which has its definitions beside it; 0 and
 *  a violation if it is not there. */
int fake_definitions_find(fake_definitions *definitions, const void *image, size_t bytes);

#endif
