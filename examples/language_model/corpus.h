/* corpus.h: a text file as a dataset of word numbers, in the way of PyTorch's WikiText-2 examples. */
#ifndef LANGUAGE_MODEL_CORPUS_H
#define LANGUAGE_MODEL_CORPUS_H

#include <cfabric/cfabric.h>

/* Reads a UTF-8 text: words are separated by white space, every line ends with the word <eos>, words are numbered in the order in which
 * they first appear. Line ends may be LF, CRLF or CR. A NUL is an ordinary character. Sample i is (words i*block .. i*block+block-1, the
 * same shifted by one word), both int64. `vocabulary` receives how many different words there are. NULL with an error. [owned] */
th_dataset *corpus_new(const char *path, int64_t block, int64_t *vocabulary);
/* Training, validation and test parts, shuffled with seed 42: all but 4000 samples, 2000, 2000; of 4000 samples or fewer a half, a
 * quarter and a quarter. Hands `corpus` over. */
th_status corpus_split(th_dataset *corpus, th_dataset *parts[3]);

#endif
