/**
 * Turns counters that only grow into rates, from one look to the next. Endpoints without an
 * earlier look have none yet.
 */
export function measureRates() {
  let earlier = new Map()
  let lookedAt = performance.now()
  return { measure }

  /** The devices with `requestsPerS`, `bytesInPerS` and `bytesOutPerS` at each endpoint. */
  function measure(devices) {
    const now = performance.now()
    const seconds = Math.max(0.001, (now - lookedAt) / 1_000)
    const seen = new Map()
    const measured = devices.map((device) => ({
      ...device,
      endpoints: device.endpoints.map((endpoint) => {
        const { traffic } = endpoint
        const last = earlier.get(endpoint.id) ?? traffic
        seen.set(endpoint.id, traffic)
        const rate = (name) => Math.max(0, (traffic[name] - last[name]) / seconds)
        return {
          ...endpoint,
          requestsPerS: rate('requests'),
          bytesInPerS: rate('bytes_in'),
          bytesOutPerS: rate('bytes_out'),
        }
      }),
    }))
    earlier = seen
    lookedAt = now
    return measured
  }
}

/** The same for devices with sums of their own: `requestsPerS`, `bytesInPerS`, `bytesOutPerS`, `bytesPerS`. */
export function measureSums() {
  let earlier = new Map()
  let lookedAt = performance.now()
  return { measure }

  function measure(devices) {
    const now = performance.now()
    const seconds = Math.max(0.001, (now - lookedAt) / 1_000)
    const measured = devices.map((device) => {
      const last = earlier.get(device.id) ?? device
      const rate = (name) => Math.max(0, (device[name] - last[name]) / seconds)
      const [requestsPerS, bytesInPerS, bytesOutPerS] = [
        rate('requests'),
        rate('bytes_in'),
        rate('bytes_out'),
      ]
      return {
        ...device,
        requestsPerS,
        bytesInPerS,
        bytesOutPerS,
        bytesPerS: bytesInPerS + bytesOutPerS,
      }
    })
    earlier = new Map(devices.map((device) => [device.id, device]))
    lookedAt = now
    return measured
  }
}
