/* Operators of your own for `tenure run --kernels LIB` and `tenure bisect --kernels LIB`.
 *
 * A shared library exports one function, tenure_kernels(), which gives a table of kernels. A kernel
 * is made once for each node of its operator, when all types and shapes are known, and then run any
 * number of times. It reads its inputs and writes its outputs where the plan has laid them, and
 * nothing else, and it keeps no pointer to them beyond a run: the memory is somebody else's then.
 *
 * What the operator does to memory is a row of a table (`--ops FILE`); without one it is taken to
 * read all inputs and to share nothing. An example is examples/kernels/scaled_tanh.c.
 */
#ifndef TENURE_KERNEL_H
#define TENURE_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. */
#define TENURE_KERNEL_ABI 1u

/* Types of elements, as ONNX numbers them. Others are passed with their ONNX number too; 0 is a type
 * that ONNX does not have. */
enum {
    TENURE_FLOAT32 = 1,
    TENURE_UINT8 = 2,
    TENURE_INT8 = 3,
    TENURE_INT32 = 6,
    TENURE_INT64 = 7,
    TENURE_BOOL = 9,
    TENURE_FLOAT16 = 10,
    TENURE_FLOAT64 = 11,
    TENURE_BFLOAT16 = 16
};

/* A tensor: elements lie in order, the last dimension is the innermost. `data` is aligned for the
 * elements; it is NULL in `make`, and where an input or output is left out. */
typedef struct tenure_tensor {
    void *data;
    uint64_t bytes;
    const uint64_t *dims;
    uint32_t rank;
    uint32_t dtype;
} tenure_tensor;

/* Which member of an attribute is set. */
enum {
    TENURE_ATTR_INT = 1,
    TENURE_ATTR_FLOAT = 2,
    TENURE_ATTR_STRING = 3,
    TENURE_ATTR_INTS = 4
};

/* An attribute of the node. */
typedef struct tenure_attr {
    const char *name;
    uint32_t kind;
    uint32_t count; /* of `ints` */
    int64_t i;
    double f;
    const char *s;
    const int64_t *ints;
} tenure_attr;

/* The node that a kernel is made for; it is there during `make` alone. */
typedef struct tenure_node {
    const char *name;
    const tenure_tensor *inputs;
    const tenure_tensor *outputs;
    const tenure_attr *attrs;
    uint32_t input_count;
    uint32_t output_count;
    uint32_t attr_count;
} tenure_node;

/* A kernel is right when output 0 is the very memory of an input. Else such an input is copied. */
#define TENURE_IN_PLACE 1u

/* One operator. Functions give NULL when all is well, and else a text that says what is wrong; the
 * text stays there for as long as the library is loaded. They are called from any thread, for one
 * state by one thread at a time. */
typedef struct tenure_kernel {
    const char *domain; /* "" is the default domain */
    const char *op;
    uint32_t flags;
    /* May be NULL: then there is no state. A node that cannot be run is refused here. */
    const char *(*make)(const tenure_node *node, void **state);
    const char *(*run)(void *state, const tenure_tensor *inputs, uint32_t input_count,
                       const tenure_tensor *outputs, uint32_t output_count);
    /* Frees the state; may be NULL. */
    void (*drop)(void *state);
} tenure_kernel;

typedef struct tenure_kernel_table {
    uint32_t abi; /* TENURE_KERNEL_ABI */
    uint32_t count;
    const tenure_kernel *kernels;
} tenure_kernel_table;

/* What the library exports. The table stays there for as long as the library is loaded. */
#ifdef _WIN32
__declspec(dllexport)
#endif
const tenure_kernel_table *tenure_kernels(void);

#ifdef __cplusplus
}
#endif

#endif
