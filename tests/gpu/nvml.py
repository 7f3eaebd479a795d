"""Clock, power and temperature of a GPU while something runs on it, from NVIDIA's management library."""
import ctypes
import statistics
import threading
import time

SM_CLOCK = 1  # nvmlClockType_t
GPU_TEMPERATURE = 0  # nvmlTemperatureSensors_t


class Sampler:
    """Reads the GPU's state every `period_s` in a thread of its own until stop(). Without the library it has no samples."""

    def __init__(self, index=0, pci_bus_id=None, period_s=0.2):
        self.samples = []  # (time, SM clock in MHz, power in W, temperature in degrees Celsius)
        self.driver = None
        self._stopped = threading.Event()
        self._thread = None
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        self._device = ctypes.c_void_p()
        if self._library.nvmlInit_v2() != 0:
            return
        if pci_bus_id is not None:
            found = self._library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(self._device))
        else:
            found = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(self._device))
        if found != 0:
            return
        text = ctypes.create_string_buffer(96)
        if self._library.nvmlSystemGetDriverVersion(text, 96) == 0:
            self.driver = text.value.decode()
        self._thread = threading.Thread(target=self._run, args=(period_s,), daemon=True)
        self._thread.start()

    def _read(self, function, *arguments):
        value = ctypes.c_uint()
        result = getattr(self._library, function)(self._device, *arguments, ctypes.byref(value))
        return value.value if result == 0 else None

    def _run(self, period_s):
        while not self._stopped.wait(period_s):
            power = self._read("nvmlDeviceGetPowerUsage")  # mW
            self.samples.append((time.time(), self._read("nvmlDeviceGetClockInfo", ctypes.c_int(SM_CLOCK)),
                                 None if power is None else power / 1e3,
                                 self._read("nvmlDeviceGetTemperature", ctypes.c_int(GPU_TEMPERATURE))))

    def stop(self):
        self._stopped.set()
        if self._thread:
            self._thread.join()

    def between(self, begin, end):
        """Medians over the samples of this span of time.time()."""
        within = [sample for sample in list(self.samples) if begin <= sample[0] <= end]
        result = {"samples": len(within)}
        for column, name in ((1, "sm_mhz"), (2, "power_w"), (3, "temperature_c")):
            values = [sample[column] for sample in within if sample[column] is not None]
            result[name] = statistics.median(values) if values else None
        return result
