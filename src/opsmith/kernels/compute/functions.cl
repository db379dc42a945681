R"(
// The functions that expressions call beside OpenCL's own, in C.

// NaN where a limit is, as the CPU's clamp of numbers.
DEVICE inline C clamped(C a, C lower, C upper) {
  const C least = lower != lower || a < lower ? lower : a;
  return upper != upper || least > upper ? upper : least;
}

#ifdef FLOATING
DEVICE inline C floor_divided(C a, C b) {
  if (b == 0) return a / b;
  const C rest = fmod(a, b);
  C quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return copysign((C)0, a / b);
  const C below = floor(quotient);
  return quotient - below > (C)0.5 ? below + 1 : below;
}

DEVICE inline C remainder_of(C a, C b) {
  const C rest = fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

DEVICE inline C sigmoid(C a) { return 1 / (1 + exp(-a)); }

// The normal distribution's distribution function and density.
DEVICE inline C normal_below(C a) { return (C)0.5 * (1 + erf(a * (C)0.70710678118654752440)); }
DEVICE inline C normal_density(C a) { return (C)0.39894228040143267794 * exp((C)-0.5 * a * a); }

// tanh's argument in the approximate GELU.
DEVICE inline C gelu_inner(C a) { return (C)0.79788456080286535588 * (a + (C)0.044715 * a * a * a); }
DEVICE inline C gelu_tanh_slope(C a) {
  const C t = tanh(gelu_inner(a));
  const C inner_slope = (C)0.79788456080286535588 * (1 + 3 * (C)0.044715 * a * a);
  return (C)0.5 * (1 + t) + (C)0.5 * a * (1 - t * t) * inner_slope;
}

DEVICE inline C silu_slope(C a) {
  const C s = sigmoid(a);
  return s * (1 + a * (1 - s));
}

// From the nearer end, so that weights 0 and 1 give the ends exactly.
DEVICE inline C interpolated(C a, C b, C weight) {
  return fabs(weight) < (C)0.5 ? a + weight * (b - a) : b - (b - a) * (1 - weight);
}
#endif
)"
