"""What a step computes with: the toy model, the tensors of a launch, and decode calls captured as graphs."""
