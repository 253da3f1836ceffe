import type { Express, Response } from 'express'

/** Ends each JSON answer of an app with a newline: on a terminal the prompt stands below it. */
export function endJsonWithNewline(app: Express): void {
  app.response.json = function json(this: Response, body: unknown) {
    if (this.get('content-type') === undefined) this.type('json')
    return this.send(`${JSON.stringify(body)}\n`)
  }
}
