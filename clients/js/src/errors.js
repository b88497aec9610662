// Errors, each with a stable `code` and a hint that names what to change.

export class RelaxdError extends Error {
  code = 'relaxd.error';

  constructor(message, { hint, cause, ...details } = {}) {
    super(hint ? `${message} (${hint})` : message, { cause });
    Object.assign(this, { hint, details });
  }

  get name() {
    return this.constructor.name;
  }
}

/** A bundle is incomplete, corrupt, or of a kind that this package cannot run. */
export class BundleError extends RelaxdError {
  code = 'bundle.invalid';
}

/** The engine lacks what the bundle needs. */
export class LoadContractError extends RelaxdError {
  code = 'bundle.load_contract';
}

/** An input or a dim has a wrong name, type, length or value. */
export class InputError extends RelaxdError {
  code = 'run.input';
}

/** More tokens are given than the caches of a state have room for. */
export class CapacityError extends RelaxdError {
  code = 'run.capacity';

  constructor(tokens, capacity) {
    super(`${tokens} tokens are too many: there is room for ${capacity}`, {
      hint: 'shorten the prompt, truncate or reset the state, or make one of a greater capacity', tokens, capacity,
    });
  }
}

/** The compiled code failed, or memory ran out. */
export class ExecutionError extends RelaxdError {
  code = 'run.failed';
}

/** A reference names no bundle, or content does not match its digest. */
export class PullError extends RelaxdError {
  code = 'client.pull';
}

/** The service refused; `status` is the HTTP status. */
export class ServerError extends RelaxdError {
  code = 'server.problem';

  constructor(message, { status, ...rest }) {
    super(message, rest);
    this.status = status;
  }
}

/** No service answered, or the browser keeps its answer from the page. */
export class ServerUnreachable extends RelaxdError {
  code = 'server.unreachable';
}
