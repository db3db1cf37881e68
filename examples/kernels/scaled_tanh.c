/* An operator of one's own: example:ScaledTanh(x) = tanh(x * scale), for float32.
 *
 *   cc -O2 -shared -fPIC -I crates/runtime/include examples/kernels/scaled_tanh.c -o libscaled.so -lm
 *   tenure run model.onnx --kernels libscaled.so
 *
 * With -DTOO_FAR=N it has a mistake: it writes an element N places behind the last one that it has.
 */
#include "tenure_kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *make(const tenure_node *node, void **state) {
    if (node->input_count != 1 || node->output_count != 1)
        return "it has one input and one output";
    if (node->inputs[0].dtype != TENURE_FLOAT32 || node->outputs[0].bytes != node->inputs[0].bytes)
        return "input and output are float32 of one shape";
    double *scale = malloc(sizeof *scale);
    if (scale == NULL)
        return "there is no memory";
    *scale = 1.0;
    for (uint32_t k = 0; k < node->attr_count; k++) {
        const tenure_attr *attr = &node->attrs[k];
        if (strcmp(attr->name, "scale") == 0 && attr->kind == TENURE_ATTR_FLOAT)
            *scale = attr->f;
    }
    *state = scale;
    return NULL;
}

static const char *run(void *state, const tenure_tensor *inputs, uint32_t input_count,
                       const tenure_tensor *outputs, uint32_t output_count) {
    (void)input_count;
    (void)output_count;
    float scale = (float)*(const double *)state;
    const float *x = inputs[0].data;
    float *y = outputs[0].data;
    uint64_t count = outputs[0].bytes / sizeof *y;
    for (uint64_t k = 0; k < count; k++)
        y[k] = tanhf(x[k] * scale);
#ifdef TOO_FAR
    if (count > 0)
        y[(int64_t)count - 1 + TOO_FAR] = -1.0f;
#endif
    return NULL;
}

static const tenure_kernel kernels[] = {
    {"example", "ScaledTanh", TENURE_IN_PLACE, make, run, free},
};

static const tenure_kernel_table table = {
    TENURE_KERNEL_ABI,
    sizeof kernels / sizeof kernels[0],
    kernels,
};

const tenure_kernel_table *tenure_kernels(void) {
    return &table;
}
