#pragma once

namespace faultline::metrics {}
