#include "trace/trace_context.h"
