/* data/idx_find.h: looking for a data file under the names and places it is known to have. */
#ifndef FABRIC_DATA_IDX_FIND_H
#define FABRIC_DATA_IDX_FIND_H

/* The path that exists. [owned] NULL with TH_ERR_NOT_FOUND naming every path that was tried. */
char *th__idx_find(const char *path);

#endif
