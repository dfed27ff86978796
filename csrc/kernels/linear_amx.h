// 16 lanes in AVX-512, and AMX tiles.
#pragma once

#include "amx_tiles.h"
#include "linear_avx512.h"
