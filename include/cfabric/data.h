/* cfabric/data.h: datasets, samplers and the loader (torch.utils.data).
 *
 * Datasets, samplers and loaders are [owned]; what is put into another object is handed over to it. */
#ifndef CFABRIC_DATA_H
#define CFABRIC_DATA_H

#include <cfabric/dataset.h>
#include <cfabric/sampler.h>
#include <cfabric/dataloader.h>

#endif
