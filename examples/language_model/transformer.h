/* transformer.h: the language model of Lightning's example. */
#ifndef LANGUAGE_MODEL_TRANSFORMER_H
#define LANGUAGE_MODEL_TRANSFORMER_H

#include <cfabric/cfabric.h>

/* Inputs: words (N, T) and the words to predict, shifted by one (N, T), both int64. Output (N * T, vocabulary): logarithms of probabilities.
 * Embedding 200, 2 heads, 2 encoder and 2 decoder layers of width 200, dropout 0.2. [owned] */
th_module *transformer_new(int64_t vocabulary);

#endif
