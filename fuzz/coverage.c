/* Reports the coverage of the decoder to libFuzzer: compilers other than clang insert a call into
 * each basic block (-fsanitize-coverage=trace-pc), while libFuzzer needs counters. */
#include <stdint.h>

#define COUNTERS 16384

extern void __sanitizer_cov_8bit_counters_init(uint8_t *start, uint8_t *end);
extern void __sanitizer_cov_pcs_init(const uintptr_t *start, const uintptr_t *end);

static uint8_t counters[COUNTERS];
/* Pairs of an address and flags. The addresses are not used, but libFuzzer checks their number. */
static uintptr_t places[2 * COUNTERS];

__attribute__((visibility("hidden"), no_sanitize("address", "undefined")))
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0) - (uintptr_t)counters;
    counters[(place * 0x9E3779B1u >> 16) % COUNTERS]++;
}

__attribute__((constructor))
static void register_counters(void)
{
    for (uintptr_t i = 0; i < COUNTERS; i++)
        places[2 * i] = (uintptr_t)counters + i;
    __sanitizer_cov_8bit_counters_init(counters, counters + COUNTERS);
    __sanitizer_cov_pcs_init(places, places + 2 * COUNTERS);
}

/* GCC also reports comparisons of floating-point numbers, which libFuzzer does not use. */
__attribute__((visibility("hidden")))
void __sanitizer_cov_trace_cmpd(double a, double b)
{
    (void)a;
    (void)b;
}

__attribute__((visibility("hidden")))
void __sanitizer_cov_trace_cmpf(float a, float b)
{
    (void)a;
    (void)b;
}
