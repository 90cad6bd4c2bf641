// @ts-check
// The errors of requests to the server, over HTTP and over the gateway.

/** The server could not be reached, or the connection ended before the response. */
export class Unreachable extends Error {
  constructor(message = "There is no connection to the server.") { super(message); }
}

/** The server answered with an error. `code` is its HTTP status. */
export class RequestRefused extends Error {
  /** @param {{message: string, code: number, name: string, details?: any}} error */
  constructor({ message, code, name, details }) {
    super(message);
    this.code = code;
    this.name = name;
    this.details = details;
  }

  toJSON() { return { message: this.message, code: this.code, name: this.name, details: this.details }; }
}
