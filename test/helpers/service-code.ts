import { ServiceError } from '../../src/gateway/records/service-error.ts'

/** The code that `action` is refused with, or undefined when it is not. */
export function serviceCode(action: () => unknown): number | undefined {
  try {
    action()
    return undefined
  } catch (error) {
    if (error instanceof ServiceError) return error.code
    throw error
  }
}

/** The same for what answers later. */
export async function rejectionCode(action: Promise<unknown>): Promise<number | undefined> {
  const error: unknown = await action.then(
    () => undefined,
    (reason) => reason,
  )
  return serviceCode(() => {
    if (error !== undefined) throw error
  })
}
