/** Waits until a number no longer grows, and answers it. */
export async function settled(read: () => number): Promise<number> {
  for (let last = -1; last !== read(); ) {
    last = read()
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  return read()
}
