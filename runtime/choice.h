/* choice.h - choosing an algorithm for a product: by its bits first, then by the clock. */
#ifndef LGH_CHOICE_H
#define LGH_CHOICE_H

#include "trial.h"

/**
 * Chooses for `shape` among the heuristic's candidates. Those that pass the trial and give the same
 * bits as the first that does are timed and the fastest is taken, so that the clock never decides
 * about a result. With `twin`, a product of the same family chosen just before, they must give the
 * twin's bits in the columns that both have: the forward and the backward pass must see the same
 * logits. The twin's own algorithm is then a candidate too. Fails with LGH_ERROR_CUBLASLT if no
 * candidate passes.
 */
lgh_status lgh__choose_product(lgh__product *product, lgh__trial *trial, const lgh__matmul *shape,
                               const lgh__product *twin);

/** Takes the algorithm that a configuration's text names for `key`, if it passes the trial; fails
 *  with LGH_ERROR_UNSUPPORTED and the key if it does not. */
lgh_status lgh__choose_named(lgh__product *product, lgh__trial *trial, const lgh__matmul *shape,
                             const lgh__product *twin, const char *configuration, const char *key);

/** Chooses for a shape that matters little to the time: `model`'s algorithm if it passes the trial,
 *  else as lgh__choose_product does. */
lgh_status lgh__choose_like(lgh__product *product, lgh__trial *trial, const lgh__matmul *shape,
                            const lgh__product *model);

#endif
