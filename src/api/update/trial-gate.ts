import type { RequestHandler } from 'express'
import { AppError } from '../../base/app-error.ts'

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
const RETRY_AFTER_S = 10

/**
 * Refuses changes while the version that runs may be undone, and the data with it: what was acknowledged
 * would be lost. AppError `storage-unavailable`.
 */
export function trialGate(isOnTrial: () => boolean): RequestHandler {
  return ({ method }, _response, next) => {
    if (SAFE_METHODS.has(method) || !isOnTrial()) {
      next()
      return
    }
    const detail =
      'A new version of the agent is on trial. Changes are refused until the trial ends. Try again in a minute.'
    next(new AppError('storage-unavailable', detail, { retryAfterS: RETRY_AFTER_S }))
  }
}
