// Base: what moves when an operation is refused.

export const moves = {
  OperationRefused: (m) => m.appear(m.root.querySelector(".notice")),
};
