#pragma once

namespace faultline::trace {}
