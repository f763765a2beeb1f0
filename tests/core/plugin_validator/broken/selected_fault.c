/* The fault of one plugin; see faults.h. */
#include "faults.h"

const int selected_fault = SELECTED_FAULT;
