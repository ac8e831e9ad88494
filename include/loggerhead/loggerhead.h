/* SPDX-License-Identifier: Apache-2.0 */
/**
 * loggerhead.h - per-token log-probability, entropy and their gradients, straight from hidden
 * states and the LM-head weight, without the logits ever existing as a whole.
 *
 * This header is the whole contract: what is not here is not part of the interface.
 *
 * For token i and vocabulary entry v:
 *
 *     x_iv  = hidden_i . weight_v (+ bias_v)    FP32 accumulation (float64 on the CPU device)
 *     x_iv  = round(x_iv)                       only with logits_rounding; its gradient is that of
 * x x_iv  = c tanh(x_iv / c)                  only with a softcap c z_iv  = x_iv / T_i T: the
 * softmax temperature, applied to FP32 logits lse_i = ln sum_v exp(z_iv) logp_i = z_i,target(i) -
 * lse_i entropy_i = - sum_v p_iv ln p_iv,         p_iv = exp(z_iv - lse_i)
 *
 * The temperature is a parameter of the computation: the weight is never divided by it, so a
 * BF16 weight is never rounded a second time, and a new temperature compiles nothing.
 *
 * The usual sequence of calls:
 *
 *     lgh_context_create                        once per device
 *     lgh_plan_create                           once per model: shapes, dtypes, wanted results
 *     lgh_plan_workspace_size                   the caller allocates that much
 *     lgh_forward                               log-prob, lse, entropy
 *     lgh_backward                              dhidden, dweight, dbias from upstream gradients
 *     lgh_plan_destroy, lgh_context_destroy
 *
 * Ownership: the caller owns every buffer and the stream; the library owns only what its handles
 * hold. lgh_forward and lgh_backward allocate no device memory, never synchronise with the device
 * and enqueue all their work on the caller's stream. On the CPU device they return when the work
 * is done.
 *
 * Threads: contexts and plans may be used from any thread at a time; a plan is immutable. Two calls
 * that run at once need two workspaces.
 *
 * Errors: every function that can fail returns an lgh_status. On failure lgh_last_error() gives,
 * for the calling thread, what went wrong, where, and what to try. A failed call has enqueued
 * nothing unless its text says so, and leaves its inputs untouched. The library never prints,
 * aborts or exits.
 */
#ifndef LOGGERHEAD_LOGGERHEAD_H
#define LOGGERHEAD_LOGGERHEAD_H

#include <stddef.h> /* size_t */
#include <stdint.h> /* fixed-width integers */

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(LGH_STATIC)
#define LGH_API __attribute__((visibility("default")))
#else
#define LGH_API
#endif

/* ---- Version ------------------------------------------------------------------------------- */

#define LGH_VERSION_MAJOR 0 /* breaking changes */
#define LGH_VERSION_MINOR 1 /* new features */
#define LGH_VERSION_PATCH 0 /* fixes */
#define LGH_VERSION_NUMBER (LGH_VERSION_MAJOR * 10000 + LGH_VERSION_MINOR * 100 + LGH_VERSION_PATCH)

/** The version of the library in use, in the form of LGH_VERSION_NUMBER. */
LGH_API int lgh_version(void);

/* ---- Status -------------------------------------------------------------------------------- */

/** Every status: name, value, text. Values are never renumbered; new ones may be added. */
#define LGH_STATUS_LIST(X)                                                                         \
    X(LGH_SUCCESS, 0, "success")                                                                   \
    X(LGH_ERROR_INVALID_ARGUMENT, 1, "an argument is invalid")                                     \
    X(LGH_ERROR_UNSUPPORTED, 2, "valid, but not supported here")                                   \
    X(LGH_ERROR_WORKSPACE, 3, "the workspace is too small, misaligned or null")                    \
    X(LGH_ERROR_OUT_OF_MEMORY, 4, "out of host or device memory")                                  \
    X(LGH_ERROR_LIBRARY_NOT_FOUND, 5, "a run-time library was not found or is too old")            \
    X(LGH_ERROR_NO_DEVICE, 6, "no such device")                                                    \
    X(LGH_ERROR_COMPILE, 7, "a kernel did not compile")                                            \
    X(LGH_ERROR_DEVICE, 8, "the CUDA driver reported an error")                                    \
    X(LGH_ERROR_CUBLASLT, 9, "cuBLASLt reported an error")                                         \
    X(LGH_ERROR_SYSTEM, 10, "the operating system reported an error")                              \
    X(LGH_ERROR_INTERNAL, 11, "a defect in this library; please report it")

typedef enum lgh_status {
#define LGH_STATUS_ENUM(name, value, text) name = value,
    LGH_STATUS_LIST(LGH_STATUS_ENUM)
#undef LGH_STATUS_ENUM
} lgh_status;

/** The status's name, such as "LGH_ERROR_WORKSPACE"; "unknown status" for any other number. */
LGH_API const char *lgh_status_name(lgh_status status);

/** One line that says what the status means. */
LGH_API const char *lgh_status_text(lgh_status status);

/**
 * The text of the calling thread's last failure: status, what failed, where in the library, and
 * what to try. Empty before the first failure. The pointer is valid until this thread's next
 * failing call; a success does not clear it. Never NULL.
 */
LGH_API const char *lgh_last_error(void);

/* ---- Data ---------------------------------------------------------------------------------- */

typedef enum lgh_dtype {
    LGH_DTYPE_NONE = 0, /**< absent */
    LGH_BF16 = 1,
    LGH_FP16 = 2,
    LGH_FP32 = 3,
    LGH_INT32 = 4,
    LGH_INT64 = 5
} lgh_dtype;

/** Bytes of one element; 0 for LGH_DTYPE_NONE and for values that are no dtype. */
LGH_API size_t lgh_dtype_size(lgh_dtype dtype);

/** A row-major matrix that a call reads: element (r, c) lies at data[r * row_stride + c]. */
typedef struct lgh_const_matrix {
    const void *data;   /**< device memory; on the CPU device host memory */
    int64_t rows;       /**< checked against the plan or the call, so that a mix-up has a name */
    int64_t columns;    /**< likewise */
    int64_t row_stride; /**< in elements, >= columns */
    lgh_dtype dtype;    /**< likewise checked */
} lgh_const_matrix;

/** The same for a matrix that a call writes. All zero (data NULL): not wanted. */
typedef struct lgh_matrix {
    void *data;
    int64_t rows;
    int64_t columns;
    int64_t row_stride;
    lgh_dtype dtype;
} lgh_matrix;

/**
 * A number, or one number per token. `data` NULL: `host` is the value, read during the call (a
 * captured CUDA graph keeps it). Otherwise the value of token i is data[i * stride], FP32 in device
 * memory (host memory on the CPU device), read when the work runs; stride 0 broadcasts data[0].
 */
typedef struct lgh_value {
    const float *data;
    int64_t stride; /**< in elements, >= 0 */
    float host;
} lgh_value;

/**
 * The rows of a call that are worked on. `rows` NULL: all of them. Otherwise rows[0 .. n - 1], in
 * device memory (host memory on the CPU device), each once, where n = min(bound, *count), or bound
 * where count is NULL: work is proportional to the list, or in part to its bound. Every other row
 * counts as ignored. A number outside [0, N) is passed over.
 */
typedef struct lgh_live {
    const int32_t *rows;
    int64_t bound;        /**< host upper bound of the list's length, in [0, N] */
    const int32_t *count; /**< optional length in device memory, so that a captured CUDA graph sees
                             a new one */
} lgh_live;

/* ---- Context: one device ------------------------------------------------------------------- */

/** A device with what was loaded for it: libraries, compiled kernels. Thread-safe. */
typedef struct lgh_context lgh_context;

typedef enum lgh_device_type {
    LGH_DEVICE_CPU = 0, /**< plain C, multi-threaded, float64 accumulation: the reference */
    LGH_DEVICE_CUDA = 1 /**< an NVIDIA GPU through the driver API, NVRTC and cuBLASLt */
} lgh_device_type;

/** Receives one line of text (no newline) about something that only costs speed. Any thread. */
typedef void (*lgh_log_callback)(void *user, const char *line);

/** Start from LGH_CONTEXT_OPTIONS_INIT. */
typedef struct lgh_context_options {
    size_t size;          /**< sizeof(lgh_context_options), set by the INIT macro */
    lgh_device_type type; /**< default: the CPU device */
    int32_t ordinal;      /**< CUDA: the device's number in the process (CUDA_VISIBLE_DEVICES) */
    int32_t cpu_threads;  /**< CPU: threads to use, 0 = every processor this process may use */
    lgh_log_callback log; /**< optional */
    void *log_user;       /**< handed to log */
} lgh_context_options;

#define LGH_CONTEXT_OPTIONS_INIT                                                                   \
    { sizeof(lgh_context_options), LGH_DEVICE_CPU, 0, 0, NULL, NULL }

/**
 * Opens a device. On CUDA it loads the driver and cuBLASLt (NVRTC comes with the first plan that
 * has a kernel to compile or look up) and retains the device's primary context, which every later
 * call pushes for its own duration and pops again.
 *
 * Fails with LGH_ERROR_LIBRARY_NOT_FOUND (the text lists where it looked), LGH_ERROR_NO_DEVICE,
 * LGH_ERROR_INVALID_ARGUMENT, LGH_ERROR_UNSUPPORTED (built without CUDA headers), LGH_ERROR_DEVICE,
 * LGH_ERROR_OUT_OF_MEMORY, LGH_ERROR_SYSTEM (a thread does not start); *context is then NULL.
 * @return status
 */
LGH_API lgh_status lgh_context_create(lgh_context **context, const lgh_context_options *options);

/** Releases the device. Every plan must have been destroyed before. NULL is a no-op. */
LGH_API void lgh_context_destroy(lgh_context *context);

/**
 * Writes the device's name, such as "NVIDIA H200 (sm_90a)", with its terminating zero; cut to
 * capacity bytes.
 * @return LGH_SUCCESS, or LGH_ERROR_INVALID_ARGUMENT
 */
LGH_API lgh_status lgh_context_device_name(const lgh_context *context, char *text, size_t capacity);

/* ---- Memory, for programs without CUDA code of their own ----------------------------------- */

/** Allocates bytes of the device's memory, aligned to 256 bytes; 0 bytes gives NULL. Fails with
 *  LGH_ERROR_INVALID_ARGUMENT, LGH_ERROR_OUT_OF_MEMORY, LGH_ERROR_DEVICE. */
LGH_API lgh_status lgh_memory_allocate(lgh_context *context, size_t bytes, void **memory);

/** Frees what lgh_memory_allocate gave. NULL is a no-op. */
LGH_API void lgh_memory_free(lgh_context *context, void *memory);

/**
 * Copies bytes between any two places, host or device, in the order of the stream, and returns when
 * the copy is done. Fails with LGH_ERROR_INVALID_ARGUMENT or LGH_ERROR_DEVICE.
 */
LGH_API lgh_status lgh_memory_copy(lgh_context *context, void *to, const void *from, size_t bytes,
                                   void *stream);

/* ---- Plan: shapes, dtypes, wanted results -------------------------------------------------- */

/** An immutable recipe: the chosen configuration with its kernels loaded. Thread-safe. */
typedef struct lgh_plan lgh_plan;

/** What lgh_forward can write. Entropy and the second log-prob cost an exponential or a fused
 *  multiply-add per logit, so they are chosen with the plan. */
enum {
    LGH_OUTPUT_LOGP = 1,        /**< log-prob of the target at temperature T */
    LGH_OUTPUT_LSE = 2,         /**< log-sum-exp of the scaled logits; lgh_backward needs it */
    LGH_OUTPUT_ENTROPY = 4,     /**< entropy; lgh_backward needs it for an entropy gradient */
    LGH_OUTPUT_LOGP_AT_ONE = 8, /**< log-prob of the target at temperature 1, same pass */
    LGH_OUTPUT_BEST = 16,       /**< the vocabulary entry with the largest logit */
    LGH_OUTPUT_ALL = 31
};

/** What the gradient of a row is whose target is no vocabulary entry and not ignore_index. */
typedef enum lgh_oov_policy {
    LGH_OOV_ZERO = 0,   /**< exactly 0 */
    LGH_OOV_SOFTMAX = 1 /**< -p g: the target's term alone is missing */
} lgh_oov_policy;

/** Start from LGH_PLAN_OPTIONS_INIT; hidden_size, vocab_size and max_tokens must be set. Sizes and
 *  vocabulary entries are at most 2^31 - 1. */
typedef struct lgh_plan_options {
    size_t size;               /**< sizeof(lgh_plan_options), set by the INIT macro */
    int64_t hidden_size;       /**< D, >= 1 */
    int64_t vocab_size;        /**< V, rows of the weight, >= 0: 0 is a shard without entries */
    int64_t max_tokens;        /**< the largest N of any call, >= 0 */
    lgh_dtype hidden_dtype;    /**< LGH_BF16, LGH_FP16 or LGH_FP32 */
    lgh_dtype weight_dtype;    /**< the same dtype, or LGH_FP32 with an LGH_BF16 hidden */
    lgh_dtype targets_dtype;   /**< LGH_INT64 or LGH_INT32 */
    lgh_dtype dhidden_dtype;   /**< LGH_FP32, a 16-bit hidden's own, or LGH_DTYPE_NONE: never
                                  wanted */
    lgh_dtype dweight_dtype;   /**< LGH_FP32, a 16-bit weight's own, or LGH_DTYPE_NONE */
    lgh_dtype logits_rounding; /**< LGH_BF16 or LGH_FP16 rounds each logit as a path that stores
                                  16-bit logits does; LGH_DTYPE_NONE (default) keeps FP32 */
    uint32_t outputs;          /**< LGH_OUTPUT_ bits that lgh_forward may be asked for */
    int64_t ignore_index;      /**< a target that does not count, default -100 */
    int64_t backward_budget;   /**< bytes of workspace that lgh_backward may use; 0 = 512 MiB */
    int64_t token_block; /**< CUDA: tokens worked on at a time; 0 = what the workspace allows. Fewer
                            cost speed and save workspace; results stay bit-equal, dweight
                            and dbias (sums over tokens) apart */
    int64_t vocab_start; /**< the vocabulary entry of the weight's first row, default 0 */
    int64_t vocab_valid; /**< entries of the whole vocabulary: those at or past it are padding,
                            of probability and gradient exactly 0; default 0: vocab_start +
                            vocab_size, so every shard but the last must set it */
    lgh_dtype bias_dtype; /**< LGH_FP32, LGH_BF16, LGH_FP16, or LGH_DTYPE_NONE (default): no bias */
    lgh_dtype dbias_dtype;     /**< LGH_FP32, or LGH_DTYPE_NONE (default): never wanted */
    float softcap;             /**< c > 0, or 0 (default): none */
    lgh_oov_policy oov_policy; /**< default LGH_OOV_ZERO */
    int32_t row_alignment; /**< bytes of which every start of a row of hidden, weight, dhidden and
                              dweight is a multiple: 2, 4, 8 or 16; 0 (default): what rows of D
                              elements that follow each other from a 16-byte boundary have. CUDA
                              only; the better, the faster */
    int32_t live_lists;    /**< not 0: calls may give args->live, which takes workspace */
    const char *configuration; /**< a text of lgh_plan_describe whose choices this plan repeats, so
                                  that results are equal bit for bit; NULL (default): choose */
} lgh_plan_options;

#define LGH_PLAN_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(lgh_plan_options), 0, 0, 0, LGH_BF16, LGH_BF16, LGH_INT64, LGH_FP32, LGH_FP32,      \
            LGH_DTYPE_NONE, LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY, -100, 0, 0, 0,  \
            0, LGH_DTYPE_NONE, LGH_DTYPE_NONE, 0.0f, LGH_OOV_ZERO, 0, 0, NULL                      \
    }

/**
 * Chooses a configuration, compiles or loads every kernel that it needs and runs each once on
 * scratch memory that it frees, so that nothing is loaded lazily later. May allocate, synchronise
 * and launch. The context must outlive the plan.
 *
 * Fails with LGH_ERROR_INVALID_ARGUMENT or LGH_ERROR_UNSUPPORTED (the text names the option),
 * LGH_ERROR_WORKSPACE (the budget is below the least possible, which the text gives),
 * LGH_ERROR_LIBRARY_NOT_FOUND (NVRTC, and no cached kernel), LGH_ERROR_COMPILE, LGH_ERROR_CUBLASLT,
 * LGH_ERROR_DEVICE, LGH_ERROR_OUT_OF_MEMORY; *plan is then NULL.
 * @return status
 */
LGH_API lgh_status lgh_plan_create(lgh_plan **plan, lgh_context *context,
                                   const lgh_plan_options *options);

/** Releases the plan; work that uses it must have finished. NULL is a no-op. */
LGH_API void lgh_plan_destroy(lgh_plan *plan);

/**
 * Writes a readable account of the chosen configuration with its terminating zero, cut to capacity
 * bytes. *length, if wanted, receives the full length without the zero. Fails with
 * LGH_ERROR_INVALID_ARGUMENT.
 */
LGH_API lgh_status lgh_plan_describe(const lgh_plan *plan, char *text, size_t capacity,
                                     size_t *length);

typedef enum lgh_pass { LGH_PASS_FORWARD = 0, LGH_PASS_BACKWARD = 1 } lgh_pass;

/** The alignment that a workspace needs, in bytes. */
#define LGH_WORKSPACE_ALIGNMENT 256

/**
 * The bytes of workspace that a call of this pass needs for up to `tokens` tokens (<= max_tokens).
 * It counts everything: partial results, staging, the workspace of matrix products. Forward stays
 * within 64 MiB for any number of tokens, backward within the plan's backward_budget, with one
 * exception: a 16-bit dweight together with a dhidden that is of 16 bits, or of a plan with
 * live_lists, stages dhidden as FP32 for all tokens beyond one token block. *beyond_budget, if
 * wanted, receives those bytes, which *bytes includes.
 * @return LGH_SUCCESS, or LGH_ERROR_INVALID_ARGUMENT
 */
LGH_API lgh_status lgh_plan_workspace_size(const lgh_plan *plan, lgh_pass pass, int64_t tokens,
                                           size_t *bytes, size_t *beyond_budget);

/* ---- Forward ------------------------------------------------------------------------------- */

/** Counters in device memory (host memory on the CPU device) that a call adds to; NULL: not wanted.
 */
typedef struct lgh_counters {
    /** Rows whose target is not ignore_index and not an entry of this weight: below 0, at or past
     *  vocab_valid, or another shard's. */
    uint64_t *foreign_targets;
    /** Rows whose temperature, read from device memory, is not positive and finite. */
    uint64_t *invalid_temperatures;
} lgh_counters;

/** Start from LGH_FORWARD_ARGS_INIT. N = hidden.rows; vectors have N elements, stride 1. */
typedef struct lgh_forward_args {
    size_t size;             /**< sizeof(lgh_forward_args), set by the INIT macro */
    lgh_const_matrix hidden; /**< [N, D] */
    lgh_const_matrix weight; /**< [V, D] */
    const void *targets;   /**< [N] of the plan's targets_dtype, entries of the whole vocabulary; or
                              NULL where no log-prob is asked for: every row then counts */
    lgh_value temperature; /**< T > 0 and finite */
    float *logp;           /**< [N] out, or NULL */
    float *lse;            /**< [N] out, or NULL */
    float *entropy;        /**< [N] out, or NULL */
    float *logp_at_one;    /**< [N] out, or NULL */
    const void *bias;      /**< [V] of the plan's bias_dtype; NULL only where that is none */
    int64_t *best;         /**< [N] out, or NULL: the entry of the whole vocabulary with the largest
                              logit, the lowest on ties; -1 for rows that do not count */
    lgh_live live;         /**< default: every row */
    lgh_counters counters; /**< default: none */
} lgh_forward_args;

#define LGH_FORWARD_ARGS_INIT                                                                      \
    {                                                                                              \
        sizeof(lgh_forward_args), {NULL, 0, 0, 0, LGH_DTYPE_NONE},                                 \
            {NULL, 0, 0, 0, LGH_DTYPE_NONE}, NULL, {NULL, 0, 1.0f}, NULL, NULL, NULL, NULL, NULL,  \
            NULL, {NULL, 0, NULL}, {                                                               \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/**
 * Computes the outputs that are not NULL, in one pass over the weight.
 *
 * Rows that do not count: a target equal to the plan's ignore_index, and a row that args->live
 * leaves out, give 0 for every output (best: -1). A target below 0 or at or past vocab_valid that
 * is not ignore_index gives log-probs of 0; its lse, entropy and best are those of the row. A valid
 * target of another shard gives log-probs without the target's logit: minus the shard's own lse.
 * Both are counted in args->counters. A temperature in device memory that is not positive and
 * finite gives NaN for every output of its row (best: -1), and is counted. In a shard without a
 * valid entry every row that counts gives lse = -inf, best -1 and 0 for the rest, and has no
 * gradient; so does a row whose logits are all -inf. A bias of -inf takes an entry out, unless a
 * softcap c makes it -c. N = 0 succeeds and writes nothing; a call without outputs does nothing.
 *
 * No output may overlap an input or another output.
 *
 * A token's results depend bit for bit only on its hidden row, the weight, the bias, its target and
 * T: not on N, its position, its neighbours, the token block or the live list.
 *
 * Accuracy against float64 on the same operands, for 16-bit operands: absolute error of logp, lse
 * and entropy <= 2e-5 (1 + max|z| / 8) max(1, D / 1024); FP32 operands: half of that.
 *
 * workspace: LGH_WORKSPACE_ALIGNMENT-aligned device memory (host memory on the CPU device) of at
 * least lgh_plan_workspace_size bytes. stream: a CUstream or cudaStream_t of the context's device;
 * ignored on the CPU device.
 *
 * Fails with LGH_ERROR_INVALID_ARGUMENT, LGH_ERROR_UNSUPPORTED (the text names the argument),
 * LGH_ERROR_WORKSPACE, LGH_ERROR_DEVICE, LGH_ERROR_CUBLASLT.
 * @return status
 */
LGH_API lgh_status lgh_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                               size_t workspace_bytes, void *stream);

/* ---- Backward ------------------------------------------------------------------------------ */

/** Start from LGH_BACKWARD_ARGS_INIT. Same hidden, weight, bias, targets, T and live as the forward
 *  call. */
typedef struct lgh_backward_args {
    size_t size;                /**< sizeof(lgh_backward_args), set by the INIT macro */
    lgh_const_matrix hidden;    /**< [N, D] */
    lgh_const_matrix weight;    /**< [V, D] */
    const void *targets;        /**< [N], or NULL where grad_logp is the host value 0 */
    lgh_value temperature;      /**< T */
    const float *lse;           /**< [N] as lgh_forward of the same plan wrote it */
    const float *entropy;       /**< [N] likewise; NULL where grad_entropy is the host value 0 */
    lgh_value grad_logp;        /**< g_i = dL/dlogp_i, default 0 */
    lgh_value grad_entropy;     /**< e_i = dL/dentropy_i, default 0 */
    lgh_value grad_lse;         /**< l_i = dL/dlse_i, default 0 */
    lgh_matrix dhidden;         /**< [N, D] out, overwritten; data NULL: not wanted */
    lgh_matrix dweight;         /**< [V, D] out; data NULL: not wanted */
    int32_t accumulate_dweight; /**< not 0: add to dweight (FP32 only) in place of overwriting */
    int32_t accumulate_dbias;   /**< likewise for dbias */
    const void *bias;           /**< [V] of the plan's bias_dtype; NULL only where that is none */
    float *dbias;               /**< [V] out, or NULL */
    lgh_live live;              /**< default: every row */
    lgh_counters counters;      /**< default: none */
} lgh_backward_args;

#define LGH_BACKWARD_ARGS_INIT                                                                     \
    {                                                                                              \
        sizeof(lgh_backward_args), {NULL, 0, 0, 0, LGH_DTYPE_NONE},                                \
            {NULL, 0, 0, 0, LGH_DTYPE_NONE}, NULL, {NULL, 0, 1.0f}, NULL, NULL, {NULL, 0, 0.0f},   \
            {NULL, 0, 0.0f}, {NULL, 0, 0.0f}, {NULL, 0, 0, 0, LGH_DTYPE_NONE},                     \
            {NULL, 0, 0, 0, LGH_DTYPE_NONE}, 0, 0, NULL, NULL, {NULL, 0, NULL}, {                  \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/**
 * Recomputes the logits block by block and writes
 *
 *     dz_iv = g_i (1[v = target(i)] - p_iv) - e_i p_iv (ln p_iv + entropy_i) + l_i p_iv
 *     dx_iv = dz_iv / T            (times 1 - (x / c)^2 under a softcap, x after it)
 *     dhidden = dx weight          dweight = dx^T hidden          dbias_v = sum_i dx_iv
 *
 * with dx rounded to the weight's dtype on CUDA, FP16 after multiplication by a power of two that
 * each token's gradients and T decide, and float64 on the CPU device.
 *
 * (softmax derivative; the entropy term is dH/dz_v = -p_v (ln p_v + H)). A row that does not count
 * has a gradient of exactly 0; so has, by default, a row whose target is below 0 or at or past
 * vocab_valid: see the plan's oov_policy. For a valid target of another shard the target's term is
 * missing here. An invalid temperature in device memory makes its row of dhidden NaN and adds
 * nothing to dweight and dbias. N = 0 writes zeros to an overwritten dweight and dbias and nothing
 * else.
 *
 * dhidden is bit for bit a function of the token's own row, target, lse, entropy and upstream
 * gradients, the weight and T; dweight and dbias are equal from run to run.
 *
 * Relative L2 error against float64, of dhidden, of the rows of dweight that are some token's
 * target and of those that are none: <= 2.5e-3 with FP32 outputs, <= 4e-3 with 16-bit outputs;
 * <= 1e-5 max(1, D / 1024) with FP32 operands. In dbias_v each dx_iv is off by at most half a unit
 * in the last place of the weight's dtype, 2^-8 dx_iv with BF16; a sum that cancels has a larger
 * error relative to itself.
 * Probabilities come from the FP32 lse, whose rounding alone costs them 6e-8 |lse| relative to
 * their size: with FP32 operands the bound asks for |lse| below about 150, and for target
 * probabilities that are not within 1e-2 of 1 in every row. A temperature so small that lse leaves
 * the range of FP32 has no right gradients.
 *
 * Workspace, stream and failures as for lgh_forward. No output may overlap an input or another
 * output. On CUDA every row of hidden and weight must be finite, rows that do not count among them:
 * their gradients of 0 are multiplied by it.
 * @return status
 */
LGH_API lgh_status lgh_backward(const lgh_plan *plan, const lgh_backward_args *args,
                                void *workspace, size_t workspace_bytes, void *stream);

/* ---- Live rows ----------------------------------------------------------------------------- */

/**
 * Lists the tokens whose target is not the plan's ignore_index, in rising order, for args->live:
 * writes at most `tokens` numbers to rows and their count to *count, both in device memory (host
 * memory on the CPU device), in stream order and without synchronisation. The plan must have
 * live_lists set.
 *
 * targets: [tokens] of the plan's targets_dtype. tokens <= max_tokens; 0 writes a count of 0.
 * Fails with LGH_ERROR_INVALID_ARGUMENT (the text names the argument), LGH_ERROR_DEVICE.
 * @return status
 */
LGH_API lgh_status lgh_live_rows(const lgh_plan *plan, const void *targets, int64_t tokens,
                                 int32_t *rows, int32_t *count, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* LOGGERHEAD_LOGGERHEAD_H */
